BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0004');
CREATE TABLE audit (
	id INTEGER NOT NULL, 
	at DOUBLE NOT NULL, 
	actor VARCHAR(200) NOT NULL, 
	action VARCHAR(40) NOT NULL, 
	population VARCHAR(100), 
	run VARCHAR(40), 
	round INTEGER, 
	event VARCHAR(32) NOT NULL, 
	body TEXT NOT NULL, 
	previous VARCHAR(64) NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_audit PRIMARY KEY (id), 
	CONSTRAINT uq_audit_event UNIQUE (event)
);
INSERT INTO "audit" VALUES(1,1.79532816190464329718e+09,'officer','population.create','people',NULL,NULL,'bb461ed15c328fbad6f6dc4d820ee6ed','{"accounting":"individual","adjacency":"zero_out","delta":1e-06,"epsilon":4.0,"leak":8.673617379884035e-25,"salt":"03d239afeed67d8954ba95e324c71fc7307a0a4e324d307d41b9a58a77319e23","simulated":false,"unit":"user"}','4c3e93ebbaa74fa80db85b584f00a33290c857af79ec9e59549bc806e6bbd31d','48aa1e356dc07c792ac2c54cbcad5c22904a167ba32c846051c3e9137e0ac868');
INSERT INTO "audit" VALUES(2,1.79532816192538547512e+09,'officer','population.raise','people',NULL,NULL,'445a6b831fc3e1dba6716131c3e64309','{"delta":1e-06,"epsilon":5.0,"reason":"agreed on 3 May"}','48aa1e356dc07c792ac2c54cbcad5c22904a167ba32c846051c3e9137e0ac868','770fba93de9a2e58f053f93be45e432f2aa9ad23de61e024124eb04b6ba2373a');
INSERT INTO "audit" VALUES(3,1.7953281619365363121e+09,'officer','population.create','others',NULL,NULL,'89f5bce4d4471a153696f30c773f3ca6','{"accounting":"worst-case","adjacency":"add_remove","delta":1e-06,"epsilon":1.0,"leak":1e-07,"salt":"978b15e705ecdcc75126f0d9e13d0c5749dbcf8ccb279909973f8c452a16f8c9","simulated":false,"unit":"user"}','770fba93de9a2e58f053f93be45e432f2aa9ad23de61e024124eb04b6ba2373a','eb9eaaf48e9a425766d9a39758e9d113ab358f6270ea76143175bab57b21bb1d');
INSERT INTO "audit" VALUES(4,1795328161.95591,'officer','population.close','others',NULL,NULL,'be8b54910ae62a0871db5ed7b8aaf857','{}','eb9eaaf48e9a425766d9a39758e9d113ab358f6270ea76143175bab57b21bb1d','db1ff89f3a0420e58bef5062033645057e6a0bb59b00ae1fe076f0cb830a7f16');
INSERT INTO "audit" VALUES(5,1.79532816196763753894e+09,'officer','token.create',NULL,NULL,NULL,'417a29e738b7dc37006fe205b4e34793','{"digest":"a8454c6205b58b63065d1850284b64f584f5b528d57aa522ed2327144cb403cf","expires_at":null,"id":"3a7fb5046764","name":"page","scopes":["read"]}','db1ff89f3a0420e58bef5062033645057e6a0bb59b00ae1fe076f0cb830a7f16','7cf9e7021ed23b341756fd278d8cad5349c8e8becc1a5e4ec293817bc9b00524');
INSERT INTO "audit" VALUES(6,1.79532816197835016257e+09,'officer','token.create',NULL,NULL,NULL,'465970516fe8d14fb7d9a0dfc5ef32b4','{"digest":"7e31eedb67146051598ac0330c0b3f765d1ba9966d4615c69bb836245ba14970","expires_at":null,"id":"b4f187864400","name":"office","scopes":["read","admin"]}','7cf9e7021ed23b341756fd278d8cad5349c8e8becc1a5e4ec293817bc9b00524','f164e02aafc5c0498fbf74d1c396cc4164baf0adbff574409764600fe372a07e');
INSERT INTO "audit" VALUES(7,1.7953281619822883606e+09,'officer','token.revoke',NULL,NULL,NULL,'7dcb54eeae9bc09a77f3175e80e75af3','{"id":"3a7fb5046764"}','f164e02aafc5c0498fbf74d1c396cc4164baf0adbff574409764600fe372a07e','57933696157477395264f3d54e1edb998deb9ccc46fe4890c4ae6a3d838f9b88');
INSERT INTO "audit" VALUES(8,1.79532816199197626117e+09,'test','run.start','people','44b7b60a51da',NULL,'f237505b3b3dde832ae8595983728233','{"accounting":"worst-case","format":1,"key_commitment":"a59e5d2e6c8f06d6b01d6ef390f9ed5ae943c2c0d19a3c3b24d0b7047e3f2e0a","largest":0,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.6400000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.6400000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','57933696157477395264f3d54e1edb998deb9ccc46fe4890c4ae6a3d838f9b88','a0d5d09bf6876e80008a2e21226e0b642745742c91ad55f4eefcdd8901b66dbc');
INSERT INTO "audit" VALUES(9,1.79532816202075934408e+09,'run 44b7b60a51da','users.register','people','44b7b60a51da',NULL,'f8b4ebbd620f8f788425c21be27bb87f','{"count":40,"first":0,"hashes":"013c3f8fbe3d0246761b45275d627944b661a2ee29a3922950d76bc4eb4b9c5f"}','a0d5d09bf6876e80008a2e21226e0b642745742c91ad55f4eefcdd8901b66dbc','0a03fe17631572609d5799f96fe130bc53b7c81e3226c4a3d8ea3061a33bbece');
INSERT INTO "audit" VALUES(10,1.79532816203927731509e+09,'run 44b7b60a51da','round.open','people','44b7b60a51da',0,'29c89e174120d9e9254714530b6fd4ba','{"attempt":0,"cohort":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","cohort_size":3,"noise_row":0}','0a03fe17631572609d5799f96fe130bc53b7c81e3226c4a3d8ea3061a33bbece','015c312c7e584487595b94940575aca7bd0cf40f3ab46c5814ab0241ae808ed3');
INSERT INTO "audit" VALUES(11,1.79532816208637261388e+09,'run 44b7b60a51da','round.commit','people','44b7b60a51da',0,'775e59478e16d13d807f62ccbbe2490f','{"attempt":0,"checkpoint":"5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9","epsilon":0.8341175486240524,"noise_row":0,"nonce":"00000000000000000000000000000000","participant_count":3,"participants":"6d34f835e6ad2facc813b330ee06c8f039ddefab820d8fd5c9d7554a8af34f24","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.04,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','015c312c7e584487595b94940575aca7bd0cf40f3ab46c5814ab0241ae808ed3','556875d875625607d35405e5fad10a64797e9bea5be73fc6c8b2d524b1672d3a');
INSERT INTO "audit" VALUES(12,1.79532816210265660289e+09,'run 44b7b60a51da','round.open','people','44b7b60a51da',1,'27b3e85788879b1ef40f158ca4b5bbd3','{"attempt":0,"cohort":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","cohort_size":2,"noise_row":1}','556875d875625607d35405e5fad10a64797e9bea5be73fc6c8b2d524b1672d3a','161e2994503689caf77f7ce111512e43bc205f3d1de42f438f395bdf523c75bf');
INSERT INTO "audit" VALUES(13,1.79532816211268520358e+09,'run 44b7b60a51da','round.commit','people','44b7b60a51da',1,'3b44b57f87f438445e825fd6372c8a56','{"attempt":0,"checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":1.2119674527380742,"noise_row":1,"nonce":"01010101010101010101010101010101","participant_count":2,"participants":"e2bbd168851bb149198913ed70a0e3a4e097711896fce3f22d46cdcfbcdc8928","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','161e2994503689caf77f7ce111512e43bc205f3d1de42f438f395bdf523c75bf','ca9031f8dd33fa54bbb97c6c0ee09a343d754adc066b715c1aa8e26dae75cb2c');
INSERT INTO "audit" VALUES(14,1.79532816211991143231e+09,'run 44b7b60a51da','round.open','people','44b7b60a51da',2,'92f1cfd24aa291734e08b1072f45c4bd','{"attempt":0,"cohort":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","cohort_size":1,"noise_row":2}','ca9031f8dd33fa54bbb97c6c0ee09a343d754adc066b715c1aa8e26dae75cb2c','94a1b889907ac3d3fa4de9c1230f047bb8f15b028932e49c538d6ae2855b084d');
INSERT INTO "audit" VALUES(15,1.79532816213064694409e+09,'run 44b7b60a51da','round.commit','people','44b7b60a51da',2,'8b73943b3064fd27f94f8be5cf59fb9d','{"attempt":0,"checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":1.2119674527380742,"noise_row":2,"nonce":"02020202020202020202020202020202","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{"nan":1},"reports":9,"spent":"{\"mu_squared\":0.08,\"sampled\":[]}","statistics":"167e0e85e91103e12971535ea824ce7b4066bfa115fb5a7fd6e171edbb2ecf39"}','94a1b889907ac3d3fa4de9c1230f047bb8f15b028932e49c538d6ae2855b084d','5d4b5cbcc82d6887f3ddf00f0b14247618da1c46f216b2290caf17458672c65a');
INSERT INTO "audit" VALUES(16,1.79532816213837790493e+09,'44b7b60a51da','run.finish','people','44b7b60a51da',NULL,'c7d62e062faaffccafa877f0cf4af874','{"message":"","settled":"{\"mu_squared\":0.08,\"sampled\":[]}","spent":"{\"mu_squared\":0.08,\"sampled\":[]}","state":"done"}','5d4b5cbcc82d6887f3ddf00f0b14247618da1c46f216b2290caf17458672c65a','72a7fcb2b67378b4646e0892e157ccd9869fda38405839dda04ce8125a4e8ac9');
INSERT INTO "audit" VALUES(17,1.79532816214740300175e+09,'test','run.start','people','ae89bb930073',NULL,'12586aab819625a3b9ce9dd5e58fc204','{"accounting":"individual","format":1,"key_commitment":"ba07310ebf06acc0eab860d823432d6d0c30933bab42d19c2ba80cef838bdcd4","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','72a7fcb2b67378b4646e0892e157ccd9869fda38405839dda04ce8125a4e8ac9','f8fdbe06f6e2ce42f89d1a6763b27150da4c1de8fd8507a2fc8a6b7e694ddced');
INSERT INTO "audit" VALUES(18,1.7953281621651170254e+09,'run ae89bb930073','round.open','people','ae89bb930073',0,'3171eba0d803b9aaede688d4034cec1c','{"attempt":0,"cohort":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","cohort_size":2,"noise_row":0}','f8fdbe06f6e2ce42f89d1a6763b27150da4c1de8fd8507a2fc8a6b7e694ddced','5c44a7eec8faba5ce7ea68b1dbdceb391f82c034d35241f2c6d7b052420d1eee');
INSERT INTO "audit" VALUES(19,1.79532816217653203006e+09,'run ae89bb930073','round.commit','people','ae89bb930073',0,'df56f1ad38fbc7e5ca165c5c29c8b667','{"attempt":0,"charges":"a33bb6dd8b956e03fa884326928a085e8ec24f13405fc7c28bb2432bf65cd97a","checkpoint":"6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b","epsilon":0.8341175486240524,"noise_row":0,"nonce":"07070707070707070707070707070707","participant_count":2,"participants":"6154364a41f7ea53392110419c0f41c6cacde2222325b006b591a7fc2a5fc127","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','5c44a7eec8faba5ce7ea68b1dbdceb391f82c034d35241f2c6d7b052420d1eee','42fffc7b72f4d9ee8e6eed21451d6184271e0bffcc95500d50a05ebe1e6031b8');
INSERT INTO "audit" VALUES(20,1.79532816218635296818e+09,'ae89bb930073','run.finish','people','ae89bb930073',NULL,'e6f92c68cd984d17c81c56754eebef56','{"message":"","odometers":"e03f481ac5ab3e9f5dd1c7fd6e441ad85d92d26921284e747ad913d2e9155685","settled":"{\"mu_squared\":0.12000000000000001,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','42fffc7b72f4d9ee8e6eed21451d6184271e0bffcc95500d50a05ebe1e6031b8','2f0f2227a4193c215f1ff47e30404ca1a812e721977e4bd5215a79e3aa6c3666');
INSERT INTO "audit" VALUES(21,1.79532816219948673243e+09,'test','run.start','people','ab1934f3bc19',NULL,'f5c58c19304c41adea439c21339cc357','{"accounting":"individual","format":1,"key_commitment":"01c30ae9f8c7c2d569771ca53ff3a3025beec8cb4cdfc8f35af5edef5fb1047c","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','2f0f2227a4193c215f1ff47e30404ca1a812e721977e4bd5215a79e3aa6c3666','f65b00c67d5ed6b3eca45774c936f692a98ea0638bac598f76293a56e37ae63b');
INSERT INTO "audit" VALUES(22,1.7953281622119810581e+09,'run ab1934f3bc19','round.open','people','ab1934f3bc19',0,'4e60e5c38f84bf5ca4f5653ff65a0dc9','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','f65b00c67d5ed6b3eca45774c936f692a98ea0638bac598f76293a56e37ae63b','bbb25e4efd0797b802632fc62786cbd3b6a96589b6b7726b8d42eda6bfaca202');
INSERT INTO "audit" VALUES(23,1.79532816222274589539e+09,'run ab1934f3bc19','round.commit','people','ab1934f3bc19',0,'4e9a4aa4dad850e21790407efca75de0','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35","epsilon":0.8341175486240524,"noise_row":0,"nonce":"08080808080808080808080808080808","participant_count":1,"participants":"47950c6e83377475598396d9602df2b18438d1e1193c2ddf095c2e5645f24a43","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','bbb25e4efd0797b802632fc62786cbd3b6a96589b6b7726b8d42eda6bfaca202','2b04ab1b666f99e76fcc325d05aa3e38e6bdffe4dd4a515e497bf593f7efaf34');
INSERT INTO "audit" VALUES(24,1.79532816223437881471e+09,'ab1934f3bc19','run.finish','people','ab1934f3bc19',NULL,'e82dd06ec317b38b401fe917246c4c50','{"message":"","odometers":"dac4627d9fd7eb37f49d50ff28f5f8191c3b588d2dc8c314ade1cab1bdc0c992","settled":"{\"mu_squared\":0.16000000000000003,\"sampled\":[]}","spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","state":"stopped"}','2b04ab1b666f99e76fcc325d05aa3e38e6bdffe4dd4a515e497bf593f7efaf34','060648c4bf0e20d65250cdb06d2804071be04bbb3bed7a8b984aeab1ffec6617');
INSERT INTO "audit" VALUES(25,1.79532816224427127843e+09,'trainer','charge.reserve','people',NULL,NULL,'74f250420b520d276acc25e2f0de25b0','{"key":"dp-sgd-1","largest":137438953472,"loss":"{\"mu\":0.1}","price":"{\"leak\":0.0,\"mu_squared\":0.010000000000000002}","what":"ranker","who":"trainer","why":"weekly"}','060648c4bf0e20d65250cdb06d2804071be04bbb3bed7a8b984aeab1ffec6617','0bc88c5e032f02d4860d13db6959fa6fd8c4cc74b221d2862daa7d67dd33f8b8');
INSERT INTO "audit" VALUES(26,1.79532816226293635364e+09,'trainer','charge.commit','people',NULL,NULL,'67686d840819a2e7f3a8b713cc572103','{"key":"dp-sgd-1"}','0bc88c5e032f02d4860d13db6959fa6fd8c4cc74b221d2862daa7d67dd33f8b8','f352054c1fb0c3f4972bcd64d77b47cb615247de42cca453ca11c0ca4d1fe31f');
INSERT INTO "audit" VALUES(27,1.79532816230926704401e+09,'trainer','charge.reserve','people',NULL,NULL,'eb41935bf11229cf5df3299000067277','{"key":"dp-sgd-2","largest":137438953472,"loss":"{\"rho\":0.001}","price":"{\"leak\":0.0,\"mu_squared\":0.0037183309503531843}","what":"ranker","who":"trainer","why":"weekly"}','f352054c1fb0c3f4972bcd64d77b47cb615247de42cca453ca11c0ca4d1fe31f','43ade9f735abda3f5a5264b15e72da35b137a824fa156bd897f506ba23f9fc91');
INSERT INTO "audit" VALUES(28,1.79532816233238816262e+09,'test','run.start','people','207bc3fdcd9f',NULL,'a46220b19bf1e7030e29982495e39bae','{"accounting":"individual","format":1,"key_commitment":"2e8bda1f5f4595380a5c06c6d06cac7ab685f36218c91fedfc51cd1cba443d4a","most":274877906944,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","pledged":"c5b42308c71c40a6fd706d061912dee5fd7dc7cf6e9297875d6d99c049948f46","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','43ade9f735abda3f5a5264b15e72da35b137a824fa156bd897f506ba23f9fc91','69564043d0d44f61b9c3d6e0da4e4c2231802ea2abd48a87b95de2abbfbefe80');
INSERT INTO "audit" VALUES(29,1.79532816234842872616e+09,'run 207bc3fdcd9f','round.open','people','207bc3fdcd9f',0,'c390acf24d7510739cc140db27577fc7','{"attempt":0,"cohort":"850b40c31538e69482c8b3df82007417140629ba16b38978a7ef7f05a3e21a6b","cohort_size":2,"noise_row":0}','69564043d0d44f61b9c3d6e0da4e4c2231802ea2abd48a87b95de2abbfbefe80','5559c3f4dc66135b51cf43d88a46e4ca599c30278ecdf4f8f00ff5f32267c284');
INSERT INTO "audit" VALUES(30,1.7953281623547878266e+09,'run 207bc3fdcd9f','round.commit','people','207bc3fdcd9f',0,'67ebfa43a053b3d1fd4596350ed364b3','{"attempt":0,"charges":"f976b84a6792a2ba0959787a04b09482a1b8c68d44c7aefe7751b1b66629e0dd","checkpoint":"4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce","epsilon":0.8341175486240524,"noise_row":0,"nonce":"06060606060606060606060606060606","participant_count":1,"participants":"fa1c3c6acace2b51760a1764994cbef2af8aca213f79fffd5b6f2f77e293c036","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','5559c3f4dc66135b51cf43d88a46e4ca599c30278ecdf4f8f00ff5f32267c284','a728c1bfc02d70dc8914927b4f84bed135fb34d86cb969f99e01d4ebcddc275a');
INSERT INTO "audit" VALUES(31,1.79532816236648488051e+09,'run 207bc3fdcd9f','run.interrupt','people','207bc3fdcd9f',NULL,'f920645cc13e33ffbc7e21ba3f4096a9','{"message":""}','a728c1bfc02d70dc8914927b4f84bed135fb34d86cb969f99e01d4ebcddc275a','ace18c43d9b2a11b6b2e269d6d36b014f7be442d77b830c79ccff1a0be1b9b57');
INSERT INTO "audit" VALUES(32,1.79532816237245941158e+09,'test','run.start','people','b8a1edeea921',NULL,'2fa90feafb055ec7cd63f21bd959c0e0','{"accounting":"worst-case","format":1,"key_commitment":"69fd34db05c80c06841c07332982d3aedc04e6cd6e7b3ae8130dbab4ef13b964","largest":412316860416,"most":null,"noise_source":"secure","plan":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","plan_digest":"23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412","planned":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","price":"{\"leak\":0.0,\"mu_squared\":0.04000000000000001}","rounds":3,"strategy":null,"trust_node_ids":false}','ace18c43d9b2a11b6b2e269d6d36b014f7be442d77b830c79ccff1a0be1b9b57','fa183b5a28f6b924ab3571149e4a3262f2e780f083f069e9282d8721bbc3d0de');
INSERT INTO "audit" VALUES(33,1.79532816239595675467e+09,'run b8a1edeea921','round.open','people','b8a1edeea921',0,'83f6d5badf16265cd3fdf145af5eee3d','{"attempt":0,"cohort":"46d2a2090f3ec57a778cdc017b0204dd3ffc97744a7e5d4e6c789b4b600073e2","cohort_size":2,"noise_row":0}','fa183b5a28f6b924ab3571149e4a3262f2e780f083f069e9282d8721bbc3d0de','5081157e4bc3ae3cb390057f60a294e7f8aab8e07daddc3f48a0a044a7920a0a');
INSERT INTO "audit" VALUES(34,1.79532816240639686586e+09,'run b8a1edeea921','round.void','people','b8a1edeea921',0,'b5e1d37c4a9a2a82146ae3f5c53dadc7','{"attempt":0,"reason":"too few","rejects":{"shape":2},"reports":1}','5081157e4bc3ae3cb390057f60a294e7f8aab8e07daddc3f48a0a044a7920a0a','fe67a35b947314dcd54d2b6eb55665dab51a88ca6cffe62e97810489a512e517');
INSERT INTO "audit" VALUES(35,1.79532816241442322725e+09,'run b8a1edeea921','round.open','people','b8a1edeea921',0,'f8cff642db2ef1b0681238cfbe3fdabb','{"attempt":1,"cohort":"32a46748a9dc0aabef51e08210130c638172505c64dbf30b8e41b121e8f9ad9c","cohort_size":2,"noise_row":0}','fe67a35b947314dcd54d2b6eb55665dab51a88ca6cffe62e97810489a512e517','f500b71df69909ce2d85982c5809373e31a38ef3f25dd2155fa4ae7b396b86e0');
INSERT INTO "audit" VALUES(36,1.79532816242064237593e+09,'run b8a1edeea921','round.commit','people','b8a1edeea921',0,'04dad9c4d1b0c2e163f5a32b08e0c43d','{"attempt":1,"checkpoint":"d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa","epsilon":0.8341175486240524,"noise_row":0,"nonce":"09090909090909090909090909090909","participant_count":1,"participants":"b1fe78d56a7c62bb11dc790717a621b63e48f9689da5a720564dcd0d1bfb0ecf","rejects":{},"reports":0,"spent":"{\"mu_squared\":0.04000000000000001,\"sampled\":[]}","statistics":"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"}','f500b71df69909ce2d85982c5809373e31a38ef3f25dd2155fa4ae7b396b86e0','c631c109ec7743b8fbfb122d8cb93697f2e10e5af55ba58a80dd21433e1ae1f8');
INSERT INTO "audit" VALUES(37,1.79532816243117165563e+09,'run b8a1edeea921','users.register','people','b8a1edeea921',NULL,'9a9602e01dffd71ce9a10308d8d36c21','{"count":10,"first":40,"hashes":"48572ede05fe4f3b9a6d0a5ead6fa37439525907860c10f72f8233b5a38aa42a","pledged":{"207bc3fdcd9f":274877906944}}','c631c109ec7743b8fbfb122d8cb93697f2e10e5af55ba58a80dd21433e1ae1f8','f200d63d0b740784af289172b251c37e984f1543390ad9d60317cb1b0fddf625');
INSERT INTO "audit" VALUES(38,1.79532816244733548164e+09,'run b8a1edeea921','round.open','people','b8a1edeea921',1,'01b4e5fe7c71505a24d54207c3873f23','{"attempt":0,"cohort":"2745bb9e9a5bde592558d3361d9f49ca8ac3e0292421d84ae954a11a60548144","cohort_size":2,"noise_row":1}','f200d63d0b740784af289172b251c37e984f1543390ad9d60317cb1b0fddf625','79f3bea39718900cfdfbade5f8ee7d718568bdd33a659539a400fbbd40c250d9');
CREATE TABLE charges (
	population_id INTEGER NOT NULL, 
	"key" VARCHAR(100) NOT NULL, 
	who VARCHAR(200) NOT NULL, 
	what VARCHAR(200) NOT NULL, 
	why TEXT NOT NULL, 
	loss TEXT NOT NULL, 
	price TEXT NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	reserved_at DOUBLE NOT NULL, 
	closed_at DOUBLE, 
	CONSTRAINT pk_charges PRIMARY KEY (population_id, "key"), 
	CONSTRAINT fk_charges_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "charges" VALUES(1,'dp-sgd-1','trainer','ranker','weekly','{"mu":0.1}','{"leak":0.0,"mu_squared":0.010000000000000002}','committed',1.79532816224427127843e+09,1.79532816226293635364e+09);
INSERT INTO "charges" VALUES(1,'dp-sgd-2','trainer','ranker','weekly','{"rho":0.001}','{"leak":0.0,"mu_squared":0.0037183309503531843}','reserved',1.79532816230926704401e+09,NULL);
CREATE TABLE head (
	id INTEGER NOT NULL, 
	ledger VARCHAR(32) NOT NULL, 
	count BIGINT NOT NULL, 
	hash VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_head PRIMARY KEY (id), 
	CONSTRAINT ck_head_one_row CHECK (id = 1)
);
INSERT INTO "head" VALUES(1,'1dd80fe929b330b585a16fcfe4366fb0',38,'79f3bea39718900cfdfbade5f8ee7d718568bdd33a659539a400fbbd40c250d9');
CREATE TABLE leases (
	run_seq INTEGER NOT NULL, 
	holder VARCHAR(300) NOT NULL, 
	token BIGINT NOT NULL, 
	beat BIGINT NOT NULL, 
	renewed_at DOUBLE NOT NULL, 
	seconds DOUBLE NOT NULL, 
	CONSTRAINT pk_leases PRIMARY KEY (run_seq), 
	CONSTRAINT fk_leases_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq)
);
INSERT INTO "leases" VALUES(1,'',2,8,1.79532816213837790493e+09,30.0);
INSERT INTO "leases" VALUES(2,'',2,3,1.79532816218635296818e+09,30.0);
INSERT INTO "leases" VALUES(3,'',2,3,1.79532816223437881471e+09,30.0);
INSERT INTO "leases" VALUES(4,'',2,3,1.79532816236648488051e+09,30.0);
INSERT INTO "leases" VALUES(5,'test',1,6,1.79532816244733548164e+09,30.0);
CREATE TABLE odometers (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	spent BLOB NOT NULL, 
	CONSTRAINT pk_odometers PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_odometers_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "odometers" VALUES(1,0,40,X'0178016360C00D14A052301AA6129D0F131F8934006AC00061');
CREATE TABLE participations (
	round_id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	count INTEGER NOT NULL, 
	users BLOB NOT NULL, charges BLOB, 
	CONSTRAINT pk_participations PRIMARY KEY (round_id), 
	CONSTRAINT fk_participations_round_id FOREIGN KEY(round_id) REFERENCES rounds (id), 
	CONSTRAINT fk_participations_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_participations_run_seq_index UNIQUE (run_seq, "index")
);
INSERT INTO "participations" VALUES(1,1,0,3,X'0178DA636064040000060003',NULL);
INSERT INTO "participations" VALUES(2,1,1,2,X'0178DA6362040000070004',NULL);
INSERT INTO "participations" VALUES(3,1,2,1,X'0178DA63010000050005',NULL);
INSERT INTO "participations" VALUES(4,2,0,2,X'0178DA6366040000090005',X'01780163606060500062105000620002100041');
INSERT INTO "participations" VALUES(5,3,0,1,X'0178DA63030000070007',X'017801636060605000620000880021');
INSERT INTO "participations" VALUES(6,4,0,1,X'0178DA63010000050005',X'017801636060605000620000880021');
INSERT INTO "participations" VALUES(8,5,0,1,X'0178DA63050000060006',NULL);
CREATE TABLE pledges (
	run_seq INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	caps BLOB NOT NULL, 
	CONSTRAINT pk_pledges PRIMARY KEY (run_seq, first), 
	CONSTRAINT fk_pledges_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq)
);
INSERT INTO "pledges" VALUES(4,0,40,X'0178016360606070006210700093A33429E10000419A0A01');
INSERT INTO "pledges" VALUES(4,40,10,X'017801636060607000621070009394D10064500281');
CREATE TABLE populations (
	id INTEGER NOT NULL, 
	name VARCHAR(100) NOT NULL, 
	epsilon DOUBLE NOT NULL, 
	delta DOUBLE NOT NULL, 
	adjacency VARCHAR(20) NOT NULL, 
	unit VARCHAR(100) NOT NULL, 
	simulated BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	salt BLOB NOT NULL, 
	users BIGINT NOT NULL, 
	settled TEXT NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, leak DOUBLE DEFAULT '0' NOT NULL, accounting VARCHAR(12) DEFAULT 'worst-case' NOT NULL, 
	CONSTRAINT pk_populations PRIMARY KEY (id), 
	CONSTRAINT ck_populations_budget CHECK (epsilon > 0 AND delta > 0 AND delta < 1), 
	CONSTRAINT uq_populations_name UNIQUE (name)
);
INSERT INTO "populations" VALUES(1,'people',5.0,1.0e-06,'zero_out','user',0,'open',X'DB49A793DCD7B653414BD3E34D4AC9DF',50,'{"mu_squared":0.16000000000000003,"sampled":[]}',1.79532816190464329718e+09,'officer',8.67361737988403508001e-25,'individual');
INSERT INTO "populations" VALUES(2,'others',1.0,1.0e-06,'add_remove','user',0,'closed',X'4EC491E99764E89D99A0576AA650D557',0,'{"mu_squared":0.0,"sampled":[]}',1.7953281619365363121e+09,'officer',1.0e-07,'worst-case');
CREATE TABLE rounds (
	id INTEGER NOT NULL, 
	run_seq INTEGER NOT NULL, 
	"index" INTEGER NOT NULL, 
	attempt INTEGER NOT NULL, 
	noise_row INTEGER NOT NULL, 
	state VARCHAR(12) NOT NULL, 
	cohort BLOB, 
	cohort_size INTEGER NOT NULL, 
	reports INTEGER NOT NULL, 
	participants INTEGER NOT NULL, 
	spent TEXT, 
	epsilon DOUBLE, 
	checkpoint VARCHAR(64), 
	statistics TEXT NOT NULL, 
	rejects TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	opened_at DOUBLE NOT NULL, 
	closed_at DOUBLE, nonce VARCHAR(32), 
	CONSTRAINT pk_rounds PRIMARY KEY (id), 
	CONSTRAINT fk_rounds_run_seq FOREIGN KEY(run_seq) REFERENCES runs (seq), 
	CONSTRAINT uq_rounds_run_seq_index_attempt UNIQUE (run_seq, "index", attempt)
);
INSERT INTO "rounds" VALUES(1,1,0,0,0,'committed',NULL,3,9,3,'{"mu_squared":0.04,"sampled":[]}',8.34117548624052407291e-01,'5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9','{"accuracy":0.5}','{"nan":1}','',1.79532816203927731509e+09,1.79532816208637261388e+09,'00000000000000000000000000000000');
INSERT INTO "rounds" VALUES(2,1,1,0,1,'committed',NULL,2,9,2,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{"accuracy":0.5}','{"nan":1}','',1.79532816210265660289e+09,1.79532816211268520358e+09,'01010101010101010101010101010101');
INSERT INTO "rounds" VALUES(3,1,2,0,2,'committed',NULL,1,9,1,'{"mu_squared":0.08,"sampled":[]}',1.21196745273807415799e+00,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{"accuracy":0.5}','{"nan":1}','',1.79532816211991143231e+09,1.79532816213064694409e+09,'02020202020202020202020202020202');
INSERT INTO "rounds" VALUES(4,2,0,0,0,'committed',NULL,2,0,2,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b','{}','{}','',1.7953281621651170254e+09,1.79532816217653203006e+09,'07070707070707070707070707070707');
INSERT INTO "rounds" VALUES(5,3,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35','{}','{}','',1.7953281622119810581e+09,1.79532816222274589539e+09,'08080808080808080808080808080808');
INSERT INTO "rounds" VALUES(6,4,0,0,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce','{}','{}','',1.79532816234842872616e+09,1.7953281623547878266e+09,'06060606060606060606060606060606');
INSERT INTO "rounds" VALUES(7,5,0,0,0,'void',NULL,2,1,0,NULL,NULL,NULL,'{}','{"shape":2}','too few',1.79532816239595675467e+09,1.79532816240639686586e+09,NULL);
INSERT INTO "rounds" VALUES(8,5,0,1,0,'committed',NULL,2,0,1,'{"mu_squared":0.04000000000000001,"sampled":[]}',8.34117548624052407291e-01,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa','{}','{}','',1.79532816241442322725e+09,1.79532816242064237593e+09,'09090909090909090909090909090909');
INSERT INTO "rounds" VALUES(9,5,1,0,1,'open',X'0178DAE36004000013000A',2,0,0,NULL,NULL,NULL,'{}','{}','',1.79532816244733548164e+09,NULL,NULL);
CREATE TABLE runs (
	seq INTEGER NOT NULL, 
	id VARCHAR(40) NOT NULL, 
	population_id INTEGER NOT NULL, 
	"plan" TEXT NOT NULL, 
	plan_digest VARCHAR(128) NOT NULL, 
	rounds INTEGER NOT NULL, 
	planned TEXT NOT NULL, 
	spent TEXT NOT NULL, 
	noise_source VARCHAR(40) NOT NULL, 
	key_commitment VARCHAR(128) NOT NULL, 
	trust_node_ids BOOLEAN NOT NULL, 
	state VARCHAR(20) NOT NULL, 
	request VARCHAR(20), 
	message TEXT NOT NULL, 
	next_round INTEGER NOT NULL, 
	checkpoint VARCHAR(64), 
	started_at DOUBLE NOT NULL, 
	started_by VARCHAR(200) NOT NULL, 
	ended_at DOUBLE, price TEXT, format INTEGER DEFAULT '0' NOT NULL, strategy VARCHAR(64), accounting VARCHAR(12) DEFAULT 'worst-case' NOT NULL, most BIGINT, 
	CONSTRAINT pk_runs PRIMARY KEY (seq), 
	CONSTRAINT fk_runs_population_id FOREIGN KEY(population_id) REFERENCES populations (id), 
	CONSTRAINT uq_runs_id UNIQUE (id)
);
INSERT INTO "runs" VALUES(1,'44b7b60a51da',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.6400000000000001,"sampled":[]}','{"mu_squared":0.08,"sampled":[]}','secure','a59e5d2e6c8f06d6b01d6ef390f9ed5ae943c2c0d19a3c3b24d0b7047e3f2e0a',0,'done',NULL,'',3,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79532816199197626117e+09,'test',1.79532816213837790493e+09,'{"leak":0.0,"mu_squared":0.6400000000000001}',1,NULL,'worst-case',NULL);
INSERT INTO "runs" VALUES(2,'ae89bb930073',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','ba07310ebf06acc0eab860d823432d6d0c30933bab42d19c2ba80cef838bdcd4',0,'stopped',NULL,'',1,'6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b',1.79532816214740300175e+09,'test',1.79532816218635296818e+09,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(3,'ab1934f3bc19',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','01c30ae9f8c7c2d569771ca53ff3a3025beec8cb4cdfc8f35af5edef5fb1047c',0,'stopped',NULL,'',1,'d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35',1.79532816219948673243e+09,'test',1.79532816223437881471e+09,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(4,'207bc3fdcd9f',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','2e8bda1f5f4595380a5c06c6d06cac7ab685f36218c91fedfc51cd1cba443d4a',0,'interrupted',NULL,'',1,'4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce',1.79532816233238816262e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'individual',274877906944);
INSERT INTO "runs" VALUES(5,'b8a1edeea921',1,'{"privacy": {"adjacency": "zero_out"}, "run": {"rounds": 4}}','23fe8672393dcb798a10a5f2c6f2aaa3e74bfa803fddbaff68978bd199087412',3,'{"mu_squared":0.04000000000000001,"sampled":[]}','{"mu_squared":0.04000000000000001,"sampled":[]}','secure','69fd34db05c80c06841c07332982d3aedc04e6cd6e7b3ae8130dbab4ef13b964',0,'running',NULL,'',1,'d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f2f3f5b2fcffa',1.79532816237245941158e+09,'test',NULL,'{"leak":0.0,"mu_squared":0.04000000000000001}',1,NULL,'worst-case',NULL);
CREATE TABLE tokens (
	id VARCHAR(20) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	scopes VARCHAR(100) NOT NULL, 
	created_at DOUBLE NOT NULL, 
	created_by VARCHAR(200) NOT NULL, 
	expires_at DOUBLE, 
	revoked_at DOUBLE, 
	CONSTRAINT pk_tokens PRIMARY KEY (id), 
	CONSTRAINT uq_tokens_digest UNIQUE (digest)
);
INSERT INTO "tokens" VALUES('3a7fb5046764','page','a8454c6205b58b63065d1850284b64f584f5b528d57aa522ed2327144cb403cf','read',1.79532816196763753894e+09,'officer',NULL,1.7953281619822883606e+09);
INSERT INTO "tokens" VALUES('b4f187864400','office','7e31eedb67146051598ac0330c0b3f765d1ba9966d4615c69bb836245ba14970','read admin',1.79532816197835016257e+09,'officer',NULL,NULL);
CREATE TABLE users (
	population_id INTEGER NOT NULL, 
	first BIGINT NOT NULL, 
	count INTEGER NOT NULL, 
	hashes BLOB NOT NULL, 
	CONSTRAINT pk_users PRIMARY KEY (population_id, first), 
	CONSTRAINT fk_users_population_id FOREIGN KEY(population_id) REFERENCES populations (id)
);
INSERT INTO "users" VALUES(1,0,40,X'2DE28B694C90084FCC95B8435D9C68B606EECCE3850EAE649846FEBC48A77ED0593A4FF24EF6BA94A445E0377079C6BD0083CCCA85E1CB7E20F495E9F4EC16B399E35A752F27E2DED673CC53A85C0A0D14A24018BCC209C51CC22ED9183CE2257381C3F06BD2A27940D42046A000B337A49B609BBC99A99913D53A42A41E697D4372F62C52770E38FB53169516BC3D9CC4E3062101339D610CD73C1A6F8DC62ED954D56DD22FED80027CD72AA89C17101B4923E17AA9F11731D26831619485802B010636A4BF356C32006DCF36F6AA5B73F84824C516E9792F6D20A0E94E8CB4C2D38C0E693E66EE537AD7239F8C6A25D4A8412D6E2DFC6B9F5BA7927BAC8BEB3552DFAD504B9FE8B38BB88720EC57578452C5780FCDC7319D18BD35CAC7BC6A2CB50C6A060D4127AF5528AD876DEAAAB1844C08375A418399BF1A51198ACC19');
INSERT INTO "users" VALUES(1,40,10,X'0912160ABDF9FE907927C733A19D02A1C15E807E2D080042CBEE608C30D9C72FFF8DA6D531E2B8EAD8FCBBEC43BFEBAE5065D5ACE9D9A6C6931D83AEE2067CE060722F7E36A1C5DE595303B25EAFA418');
CREATE INDEX ix_audit_population ON audit (population);
CREATE INDEX ix_audit_run ON audit (run);
CREATE INDEX ix_runs_population_id_state ON runs (population_id, state);
CREATE UNIQUE INDEX uq_runs_key ON runs (key_commitment) WHERE noise_source <> 'seeded';
CREATE UNIQUE INDEX uq_rounds_committed_noise_row ON rounds (run_seq, noise_row) WHERE state = 'committed';
CREATE UNIQUE INDEX uq_rounds_one_open ON rounds (run_seq) WHERE state = 'open';
CREATE TRIGGER audit_append BEFORE INSERT ON audit WHEN NEW.id <> (SELECT count FROM head) + 1 BEGIN SELECT RAISE(ABORT, 'the audit log only grows at its end'); END;
CREATE TRIGGER audit_keep BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_stay BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER head_forward BEFORE UPDATE ON head WHEN NEW.count <> OLD.count + 1 BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER head_stay BEFORE DELETE ON head BEGIN SELECT RAISE(ABORT, 'the audit log never gets shorter'); END;
CREATE TRIGGER rounds_keep BEFORE UPDATE ON rounds WHEN OLD.state <> 'open' BEGIN SELECT RAISE(ABORT, 'a closed round does not change'); END;
CREATE TRIGGER rounds_stay BEFORE DELETE ON rounds BEGIN SELECT RAISE(ABORT, 'rounds are not removed'); END;
CREATE TRIGGER participations_stay BEFORE DELETE ON participations BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
CREATE TRIGGER users_keep BEFORE UPDATE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE TRIGGER users_stay BEFORE DELETE ON users BEGIN SELECT RAISE(ABORT, 'users are not renumbered'); END;
CREATE UNIQUE INDEX uq_rounds_nonce ON rounds (nonce);
CREATE TRIGGER participations_keep BEFORE UPDATE ON participations WHEN OLD.charges IS NOT NULL OR NEW."round_id" <> OLD."round_id" OR NEW."run_seq" <> OLD."run_seq" OR NEW."index" <> OLD."index" OR NEW."count" <> OLD."count" OR NEW."users" <> OLD."users" BEGIN SELECT RAISE(ABORT, 'participation does not change'); END;
COMMIT;
